"""Runs llama.cpp for `peer` under an interpreter that has `llama_cpp` or `xllamacpp`; needs nothing of ours.

    PYTHON peer_process.py MODEL THREADS CONTEXT

Each line of standard input is a JSON object {"prompt": [ids], "predict": N}; the answer is one line with the
seconds that evaluating the prompt took, and then N single tokens after it. The first line says who answers.
Everything that the libraries print goes to standard error.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[list[int], int], tuple[float, float]]


def main() -> None:
    """Load the model and answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    model, threads, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for name, load in (("llama_cpp", _llama_cpp), ("xllamacpp", _xllamacpp)):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        run, system = load(module, model, threads, context)
        break
    else:
        sys.exit("this interpreter has neither llama_cpp nor xllamacpp")
    package = name.replace("_cpp", "-cpp-python") if name == "llama_cpp" else name
    facts = {"name": package, "version": importlib.metadata.version(package), "system": system}
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        prompt_seconds, predict_seconds = run(request["prompt"], request["predict"])
        answer = {"prompt_seconds": prompt_seconds, "predict_seconds": predict_seconds}
        print(json.dumps(answer), file=answers, flush=True)


def _llama_cpp(module: Any, path: str, threads: int, context: int) -> tuple[Run, str]:
    """llama-cpp-python: evaluates ids directly, so that the clock here is all that is needed."""
    llama = module.Llama(
        path, n_ctx=context, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
    )

    def run(prompt: list[int], predict: int) -> tuple[float, float]:
        llama.reset()
        times = [time.perf_counter()]
        llama.eval(prompt)
        times.append(time.perf_counter())
        for index in range(predict):
            llama.eval([prompt[index % len(prompt)]])
        times.append(time.perf_counter())
        return times[1] - times[0], times[2] - times[1]

    return run, module.llama_print_system_info().decode()


def _xllamacpp(module: Any, path: str, threads: int, context: int) -> tuple[Run, str]:
    """xllamacpp: a llama-server in this process, which reports its own times."""
    parameters = module.CommonParams()
    parameters.model.path = path
    parameters.n_ctx = context
    parameters.n_parallel = 1
    parameters.n_gpu_layers = 0
    parameters.cache_ram_mib = 0
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    server = module.Server(parameters)

    def run(prompt: list[int], predict: int) -> tuple[float, float]:
        answer = server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": predict + 1,  # the first token comes from the prompt's evaluation
                "max_tokens": predict + 1,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
            }
        )
        timings = answer["timings"]
        if (timings["prompt_n"], timings["predicted_n"]) != (len(prompt), predict + 1):
            sys.exit(f"the server evaluated other tokens than were asked for: {timings}")
        return timings["prompt_ms"] / 1000, timings["predicted_ms"] / 1000

    return run, module.get_system_info()


if __name__ == "__main__":
    main()

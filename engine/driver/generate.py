"""`--mode generate`: streams the tokens that continue a prompt, then one accounting record.

Token records are provisional: only the accounting record, which comes last, says that they stand.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from engine.driver.inputs import Prompt
from engine.driver.loading import computed_by, describe_model, load, model_used
from engine.driver.options import Options
from engine.driver.output import write_record
from engine.driver.progress import ProgressBar
from engine.driver.whole_file import whole_file
from engine.json_line import to_json
from engine.model import Model
from engine.runtime import Completion, GenerationOptions, OnToken, Runtime
from engine.sampling import Sampler
from engine.text_output import Utf8Output
from engine.vocabulary import Vocabulary
from engine.witness import Witness


class TokenStream:
    """Writes one record a token; with text, also its bytes and what they complete."""

    def __init__(self, vocabulary: Vocabulary, *, with_text: bool) -> None:
        self._vocabulary = vocabulary
        self._text = Utf8Output() if with_text else None
        self._index = 0

    def write(self, token: int) -> None:
        """One record, at once."""
        record: dict[str, Any] = {"type": "token", "index": self._index, "token": token}
        if self._text is not None:
            piece = self._vocabulary.piece(token)
            record["bytes"] = base64.b64encode(piece).decode("ascii")
            record["text"] = self._text.push(piece)
            record["special"] = self._vocabulary.is_control(token)
        self._index += 1
        write_record(record)

    def finish(self) -> dict[str, str]:
        """What the accounting record says of the text: the rest of an unfinished character."""
        return {} if self._text is None else {"text": self._text.finish()}


def generate(options: Options, prompt: Prompt) -> None:
    """Load the model, generate, and write all records. Raises the errors of `engine`, and `OSError`.

    A receipt that is asked for is there when the command succeeds, and only then.
    """
    if options.receipt is None:
        _generate(options, prompt, None)
    else:
        with whole_file(options.receipt, "--receipt") as file:
            _generate(options, prompt, file)


def _generate(options: Options, prompt: Prompt, receipt: BinaryIO | None) -> None:
    started = time.monotonic()
    model = load(options)
    special, vocabulary = model.tokenizer.special, model.tokenizer.vocabulary
    stops = special.generation(options.max_tokens, options.stop_tokens)
    request = GenerationOptions(options.max_tokens, stops, options.prefill_block_tokens)
    tokens = prompt.encode(model.tokenizer, model.chat)
    runtime = Runtime(
        model.decoder, checkpoint_bytes=options.checkpoint_bytes, masked=sorted(vocabulary.unused)
    )
    runtime.validate(tokens, request)
    stream = TokenStream(vocabulary, with_text=options.text_output)
    witness = Witness(options.sampler)
    loaded = time.monotonic()
    sampler = options.sampler if receipt is None else witness
    completion = run(runtime, tokens, request, options.timeout_seconds, sampler, stream.write)
    if receipt is not None:
        used = (model_used(model), computed_by(model), prompt.policies(), tokens, request, completion)
        receipt.write(to_json(witness.receipt(*used).document()).encode("utf-8") + b"\n")
        receipt.flush()  # a full disk is found here, before the record says that all is well
    timings = {
        "load_seconds": loaded - started,
        "prefill_seconds": completion.prefill_seconds,
        "decode_seconds": completion.decode_seconds,
    }
    record = _accounting(options, prompt, model, request, completion)
    write_record(record | {"timings": timings} | stream.finish())


def run(
    runtime: Runtime,
    tokens: Sequence[int],
    request: GenerationOptions,
    seconds: int | None,
    sampler: Sampler,
    on_token: OnToken,
) -> Completion:
    """Answer a prompt within `seconds` from now, None for any time, with a bar while it is evaluated."""
    with ProgressBar("prefill") as bar:

        def on_prefill(done: int, total: int) -> None:
            bar(done, total)
            if done == total:
                bar.wipe()

        return runtime.generate_sampled_until(
            tokens,
            request,
            math.inf if seconds is None else time.monotonic() + seconds,
            sampler,
            on_token=on_token,
            on_prefill=on_prefill,
        )


def _accounting(
    options: Options, prompt: Prompt, model: Model, request: GenerationOptions, completion: Completion
) -> dict[str, Any]:
    return {
        "type": "completion",
        "finish": completion.finish,
        "stop_token": completion.stop_token,
        "prompt_tokens": completion.prompt_tokens,
        "output_tokens": len(completion.tokens),
        "reused_tokens": completion.reused_tokens,
        "max_tokens": request.max_tokens,
        "context": model.decoder.context,
        "stop_tokens": list(request.stop_tokens),
        "prefill_block_tokens": request.prefill_block,
        "sampling": options.sampler.describe(),
        **prompt.describe(),
        "model": describe_model(model),
    }

"""`python -m training corpus|train|export|evaluate`: what makes the embedded model, in this order."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path

VOCABULARY_CONVERSATIONS = 20_000
STEPS = 2700


def make_corpus(folder: Path, show: int) -> None:
    """Train the vocabulary on conversations and keep its merges; show some conversations."""
    from training.corpus.conversation import converse
    from training.corpus.draw import Draw
    from training.shape import Shape
    from training.tokenizer import train_merges, write_merges
    from training.tokens import text_of

    texts = [text_of(converse(Draw(f"vocabulary:{n}"))) for n in range(VOCABULARY_CONVERSATIONS)]
    write_merges(folder / "merges.json", train_merges(texts, Shape().vocabulary))
    for text in random.Random(1).sample(texts, show):
        print(text)


def train(folder: Path, steps: int) -> None:
    """Train, or go on training."""
    from training.shape import Shape
    from training.tokenizer import make_tokenizer, read_merges
    from training.tokens import Encoder
    from training.train import Plan, Trainer

    encoder = Encoder(make_tokenizer(read_merges(folder / "merges.json")))
    trainer = Trainer(Plan(steps), Shape(), encoder, folder)
    trainer.resume()
    trainer.run()


def export(folder: Path, target: Path, golden: Path | None) -> None:
    """Write the checkpoint of `folder` as model file and manifest into `target`, and PyTorch's numbers."""
    import torch

    from engine.artifact import Pin
    from engine.manifest import Manifest, format_manifest
    from training.export import NAME, export
    from training.golden import write_golden
    from training.shape import Shape
    from training.tokenizer import make_tokenizer, read_merges

    merges = read_merges(folder / "merges.json")
    state = torch.load(folder / "checkpoint.pt")
    target = target.absolute()
    model = target / "model.gguf"
    nbytes, sha256 = export(model, Shape(), state["parameters"], merges)
    manifest = Manifest(Pin(model, nbytes, sha256), NAME)
    (target / "model.toml").write_text(format_manifest(manifest, target), "utf-8")
    print(f"step {state['step']}: {model}, {nbytes} bytes, SHA-256 {sha256}")
    if golden is not None:
        write_golden(model, make_tokenizer(merges), golden)


def evaluate(manifest: Path, count: int, bits: int, mistakes: bool) -> None:
    """Print the accuracy by task and, where PyTorch is installed, likelihoods next to its own."""
    from importlib.util import find_spec

    from training.evaluate import print_scores

    print_scores(manifest, count, bits, mistakes=mistakes)
    if find_spec("torch") is not None:
        from training.likelihood import print_likelihoods

        print_likelihoods(manifest)


def main() -> None:
    """Parse the command line and run one step."""
    parser = argparse.ArgumentParser(prog="training", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build, demo = Path("training/build"), Path("engine/demo")
    corpus = commands.add_parser("corpus", help="train the vocabulary on the corpus")
    corpus.add_argument("--show", type=int, default=0, metavar="N", help="print N conversations")
    steps = commands.add_parser("train", help="train, or go on training")
    steps.add_argument("--steps", type=int, default=STEPS, metavar="N")
    written = commands.add_parser("export", help="write the model file, its manifest, and numbers for tests")
    written.add_argument("--to", dest="target", type=Path, default=demo, metavar="FOLDER")
    written.add_argument("--golden", type=Path, metavar="FILE", help="where PyTorch's own numbers go")
    for command in (corpus, steps, written):
        command.add_argument("--folder", type=Path, default=build, help="where the steps keep their results")
    scores = commands.add_parser("evaluate", help="print accuracies of a model file, on the engine")
    scores.add_argument("--manifest", type=Path, default=demo / "model.toml", metavar="FILE")
    scores.add_argument("--count", type=int, default=100, metavar="N", help="questions a task")
    scores.add_argument("--bits", type=int, default=16, choices=(8, 16), help="bits of an activation")
    scores.add_argument("--mistakes", action="store_true", help="print a wrong answer of each task")
    chosen = vars(parser.parse_args())
    if chosen["command"] != "evaluate":
        chosen["folder"].mkdir(parents=True, exist_ok=True)
    run: dict[str, Callable[..., None]] = {
        "corpus": make_corpus,
        "train": train,
        "export": export,
        "evaluate": evaluate,
    }
    run[chosen.pop("command")](**chosen)


if __name__ == "__main__":
    main()

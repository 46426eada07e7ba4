from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.float64_graph import Float64Model
from training.shape import Shape

torch = pytest.importorskip("torch", reason="PyTorch is for training alone")
SHAPE = Shape(vocabulary=300, hidden=256, layers=2)
IDS = [7, 1, 250, 33, 33, 8] * 12


def test_an_exported_file_is_the_network(tmp_path: Path) -> None:
    """The file of random parameters means, by the formulas in float64, what PyTorch computes in training."""
    from training.export import export
    from training.network import CHUNK, Network, Texts, initial, prepare

    generator = torch.Generator().manual_seed(2)
    parameters = {name: value.detach() for name, value in initial(SHAPE, 1).items()}
    for name, value in parameters.items():
        if "norm" in name or name.endswith(("ssm_a", "bias")):
            value += 0.3 * torch.randn(value.shape, generator=generator)
    path = tmp_path / "model.gguf"
    export(path, SHAPE, parameters, [f"a {chr(0x21 + n)}" for n in range(300 - 256 - 9)])
    expected = Float64Model(path.read_bytes()).logits(IDS)
    network = Network(SHAPE, 256)
    for before in (0, 5, CHUNK + 3):  # another text in the same row changes nothing
        ids = [9] * before + IDS
        ids += [0] * (-len(ids) % CHUNK)
        numbers = [1] * before + [2] * len(IDS)
        numbers += [0] * (len(ids) - len(numbers))
        weights = prepare(parameters)
        hidden = network.hidden(weights, Texts(torch.tensor([ids]), torch.tensor([numbers])))
        found = (hidden @ weights["output.weight"].T)[0, before : before + len(IDS)].numpy()
        assert np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)) < 1e-5


def test_exported_weights_are_read_back(tmp_path: Path) -> None:
    """A file gives the very weights that training computed with."""
    from training.export import export
    from training.network import initial, prepare
    from training.weights import read_weights

    parameters = {name: value.detach() for name, value in initial(SHAPE, 3).items()}
    path = tmp_path / "model.gguf"
    export(path, SHAPE, parameters, [f"a {chr(0x21 + n)}" for n in range(300 - 256 - 9)])
    read = read_weights(path, SHAPE)
    for name, value in prepare(parameters).items():
        torch.testing.assert_close(read[name], value, rtol=0, atol=1e-7)

"""Reading a checkpoint back: whole and of this net, or refused by its name."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn


def read_state(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, tensors and plain types only.

    The file is a zip archive with a CRC-32 of each part, so that one flipped byte is noticed;
    torch itself does not compare them.

    Raises:
        ValueError: the file is damaged, or no checkpoint of normlab.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is None:
            state = torch.load(path, map_location="cpu", weights_only=True)
            if {"state_dict", "global_step", "loops"} <= state.keys():
                return dict(state)
    except MemoryError:
        raise
    except Exception:  # what the unpickler raises on other bytes is not documented
        pass
    other = "resume=FOLDER/checkpoints/best.ckpt" if path.name == "last.ckpt" else "a new run"
    raise ValueError(f"{path} is damaged or no checkpoint; use {other}")


def refuse_other_net(path: Path, net: nn.Module) -> None:
    """Check that a checkpoint has the parameters of this net.

    Raises:
        ValueError: it is of a run with another configuration.
    """
    stored = {name: v.shape for name, v in weights(read_state(path)).items()}
    own = {name: value.shape for name, value in net.state_dict().items()}
    if stored != own:
        name = min(key for key in stored.keys() | own.keys() if stored.get(key) != own.get(key))
        raise ValueError(
            f"{path} is of another net: {name} is {described(stored.get(name))} in it and "
            f"{described(own.get(name))} in this configuration; use a checkpoint of this run"
        )


def weights(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The net's part of a checkpoint, by the names that the net itself uses."""
    return {name.removeprefix("net."): value for name, value in state["state_dict"].items()}


def described(shape: torch.Size | None) -> str:
    """The shape, for a message."""
    return "missing" if shape is None else str(tuple(shape))

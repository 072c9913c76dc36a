"""Layers of heads in torch: those that checkpoints of other libraries have between pooling and vectors, between token
states and rows, and in the heads of cross-encoders. `layer_configs` and `copy_layers` make them from the arrays of
`plait.graphs.heads`, and `layer_arrays` gives the arrays back for an export."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from plait.errors import ConfigError
from plait.graphs.builder import DenseLayer, Floats, Layer, Linear, Norm
from plait.train.model_config import NO_RESIDUAL, OF_INPUT, OF_LINEAR, LayerConfig


class HeadLayer(nn.Module):
    """activation(linear(x)), plus a residual if it has one."""

    def __init__(self, n_in: int, config: LayerConfig) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        if config.residual == OF_INPUT and n_in != config.dim:
            raise ConfigError(
                f"a layer from {n_in} to {config.dim} dimensions cannot add its input; set residual to 'linear'"
            )
        self.config = config
        self.linear = nn.Linear(n_in, config.dim, bias=config.bias)
        self.activation: nn.Module = ACT2FN[config.activation] if config.activation else nn.Identity()
        self.residual = nn.Linear(n_in, config.dim, bias=False) if config.residual == OF_LINEAR else None

    def forward(self, states: Tensor) -> Tensor:
        result: Tensor = self.activation(self.linear(states))
        if self.residual is not None:
            result = result + self.residual(states)
        return result + states if self.config.residual == OF_INPUT else result


def make_layers(n_in: int, configs: Sequence[LayerConfig]) -> nn.Sequential:
    """The layers one after the other, with random weights."""
    layers: list[nn.Module] = []
    for config in configs:
        if config.norm and config.dim != n_in:
            raise ConfigError(f"a norm of {config.dim} dimensions follows a layer of {n_in}; they must be equal")
        layers.append(nn.LayerNorm(n_in, config.norm, bias=config.bias) if config.norm else HeadLayer(n_in, config))
        n_in = config.dim
    return nn.Sequential(*layers)


def layer_configs(layers: Sequence[Layer]) -> tuple[LayerConfig, ...]:
    """The configs of layers that are given as arrays."""
    configs = []
    for layer in layers:
        if isinstance(layer, Norm):
            configs.append(LayerConfig(dim=len(layer.gain), bias=layer.shift is not None, norm=layer.epsilon))
            continue
        residual = OF_LINEAR if layer.residual is not None else OF_INPUT if layer.adds_input else NO_RESIDUAL
        if layer.residual is not None and (layer.residual.bias is not None or layer.adds_input):
            raise ConfigError("a layer adds its input and another map of it; plait trains layers with one of the two")
        bias, dim = layer.linear.bias is not None, int(layer.linear.weight.shape[1])
        configs.append(LayerConfig(dim=dim, bias=bias, activation=layer.activation, residual=residual))
    return tuple(configs)


def copy_layers(modules: nn.Sequential, layers: Sequence[Layer]) -> None:
    """Copies the weights of `layers` into modules that `make_layers` made from their configs."""
    for module, layer in zip(modules, layers, strict=True):
        if isinstance(layer, Norm):
            assert isinstance(module, nn.LayerNorm)
            _copy(module.weight, layer.gain)
            if layer.shift is not None:
                _copy(module.bias, layer.shift)
        else:
            assert isinstance(module, HeadLayer)
            copy_linear(module.linear, layer.linear)
            if module.residual is not None and layer.residual is not None:
                copy_linear(module.residual, layer.residual)


def copy_linear(module: nn.Linear, linear: Linear) -> None:
    """Copies a linear map; ConfigError if the shapes differ. A map without a bias gives a bias of zero."""
    if tuple(module.weight.shape) != linear.weight.T.shape:
        raise ConfigError(
            f"a linear map has the shape {list(linear.weight.T.shape)}, and {list(module.weight.shape)} is wanted"
        )
    _copy(module.weight, linear.weight.T)
    bias: Tensor | None = module.bias
    if bias is not None:
        _copy(bias, np.zeros(len(bias), np.float32) if linear.bias is None else linear.bias)


def layer_arrays(modules: nn.Sequential) -> tuple[Layer, ...]:
    """The weights of the modules as arrays."""
    layers: list[Layer] = []
    for module in modules:
        if isinstance(module, nn.LayerNorm):
            shift: Tensor | None = module.bias
            layers.append(Norm(array_of(module.weight), None if shift is None else array_of(shift), module.eps))
        elif isinstance(module, HeadLayer):
            residual = None if module.residual is None else linear_arrays(module.residual)
            config = module.config
            layers.append(
                DenseLayer(linear_arrays(module.linear), config.activation, residual, config.residual == OF_INPUT)
            )
    return tuple(layers)


def linear_arrays(module: nn.Linear) -> Linear:
    """A linear map, its matrix as (in, out)."""
    bias: Tensor | None = module.bias
    return Linear(np.ascontiguousarray(array_of(module.weight).T), None if bias is None else array_of(bias))


def array_of(value: Tensor) -> Floats:
    """A tensor as an array in single precision."""
    array: Floats = value.detach().float().cpu().numpy()
    return array


def copy_array(parameter: Tensor, values: Floats) -> None:
    """Copies values into a parameter; ConfigError if the shapes differ."""
    if tuple(parameter.shape) != tuple(values.shape):
        raise ConfigError(f"weights have the shape {list(values.shape)}, and {list(parameter.shape)} is wanted")
    _copy(parameter, values)


def _copy(parameter: Tensor, values: Floats) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.array(values, np.float32)))

"""Linear layers with 4-bit weights (AWQ, offline) and 8-bit (online) or 16-bit activations."""

from gsslam.quant.awq import AwqScales, fold_into_linear, fold_into_norm, search_scales
from gsslam.quant.cuda_linear import LinearW4A16
from gsslam.quant.files import load_layers, save_layers
from gsslam.quant.linear import LinearW4A8
from gsslam.quant.reference import dequantize_weight, linear_reference, quantize_rows
from gsslam.quant.weights import BLOCK, GROUP, QuantizedWeight, quantize_weight

__all__ = [
    "BLOCK",
    "GROUP",
    "AwqScales",
    "LinearW4A8",
    "LinearW4A16",
    "QuantizedWeight",
    "dequantize_weight",
    "fold_into_linear",
    "fold_into_norm",
    "linear_reference",
    "load_layers",
    "quantize_rows",
    "quantize_weight",
    "save_layers",
    "search_scales",
]

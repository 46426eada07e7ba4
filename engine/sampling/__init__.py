"""Choosing the next token from logits: greedily, or by reproducible draws.

Samplers are cloneable, so that a failed request can take its draws back. Ties between equal logits always
go to the lowest id. A logit of minus infinity means "not allowed"; NaN and plus infinity are engine faults.
`docs/sampling.md` defines every sampler and its edge values.
"""

from engine.sampling.chain import ChainSampler, ChainSettings
from engine.sampling.greedy import GreedySampler, greedy
from engine.sampling.mersenne_twister import MersenneTwister
from engine.sampling.ranking import rank
from engine.sampling.reference import ReferenceSampler
from engine.sampling.sampler import Sampler
from engine.sampling.splitmix import SplitMix64
from engine.sampling.swift import SwiftSampler

__all__ = [
    "ChainSampler",
    "ChainSettings",
    "GreedySampler",
    "MersenneTwister",
    "ReferenceSampler",
    "Sampler",
    "SplitMix64",
    "SwiftSampler",
    "greedy",
    "rank",
]

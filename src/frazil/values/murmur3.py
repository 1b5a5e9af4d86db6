"""The 32-bit Murmur3 hash, x86 variant with seed 0, that bucket partitions use (Appendix B)."""

from __future__ import annotations

from typing import Final

_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
_MASK: Final = 0xFFFFFFFF


def murmur3_32(data: bytes) -> int:
    """The hash as a signed 32-bit integer."""
    length = len(data)
    body = length & ~3
    state = 0
    for start in range(0, body, 4):
        state ^= _mix(int.from_bytes(data[start : start + 4], "little"))
        state = (_rotate(state, 13) * 5 + 0xE6546B64) & _MASK
    if body < length:
        state ^= _mix(int.from_bytes(data[body:], "little"))
    final = _avalanche(state ^ length)
    return final - 0x100000000 if final > 0x7FFFFFFF else final


def _mix(block: int) -> int:
    return (_rotate((block * _C1) & _MASK, 15) * _C2) & _MASK


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _avalanche(state: int) -> int:
    state ^= state >> 16
    state = (state * 0x85EBCA6B) & _MASK
    state ^= state >> 13
    state = (state * 0xC2B2AE35) & _MASK
    return state ^ (state >> 16)

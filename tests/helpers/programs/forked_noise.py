"""Noise of a process and of its forked children, a line each, from one source after the other."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np

from poolrl.privacy.noise.secure import OpenDPNoise, SecureNoise

if __name__ == "__main__":
    for source in (SecureNoise(), OpenDPNoise()):
        counts = np.zeros(30, dtype=np.int64)
        begun = source.begin()
        begun.add(counts, Fraction(100))  # all state has been made by now
        for _ in range(8):
            if os.fork() == 0:
                try:
                    begun.add(counts, Fraction(100))
                    print("drew from its parent's release")
                except RuntimeError as error:
                    assert "begin another after a fork" in str(error)
                print(*source.begin().add(counts, Fraction(100)), flush=True)
                os._exit(0)
            os.wait()
        print(*begun.add(counts, Fraction(100)))
        print(*source.begin().add(counts, Fraction(100)), flush=True)  # or the next child would print it again

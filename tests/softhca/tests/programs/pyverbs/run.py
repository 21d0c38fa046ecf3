"""Runs the tests of rdma-core for pyverbs that are in the folder `tests` of the first argument, on
the device mlx5_0, and writes a line for each into the file of the second: its name, `ok`, `skipped`
or `failed`, and why."""

import os
import random
import sys
import unittest

FOLDER, RESULTS = sys.argv[1:]
sys.argv[1:] = ["--dev", "mlx5_0"]
sys.path[:0] = [FOLDER, os.path.join(FOLDER, "tests")]

from args_parser import parser  # noqa: E402, found by the path above

parser.parse_args()


class Lines(unittest.TestResult):
    """Each line is written when its test ends, so that a test that does not end shows who it is."""

    def __init__(self, file):
        super().__init__()
        self.file = file

    def line(self, test, outcome, why=""):
        name = test.id().removeprefix("tests.")
        print(name, outcome, " ".join(str(why).split()), file=self.file, flush=True)

    def startTest(self, test):
        super().startTest(test)
        # The tests draw lengths and rights, and a run is to be that of yesterday.
        random.seed(test.id())
        print(test.id(), file=sys.stderr, flush=True)

    def addSuccess(self, test):
        self.line(test, "ok")

    def addSkip(self, test, reason):
        self.line(test, "skipped", reason)

    def addFailure(self, test, err):
        self.line(test, "failed", err[1])

    addError = addFailure


names = sorted(name[:-3] for name in os.listdir(os.path.join(FOLDER, "tests")) if name.startswith("test_"))
with open(RESULTS, "w") as file:
    for name in names:
        unittest.defaultTestLoader.loadTestsFromName("tests." + name).run(Lines(file))

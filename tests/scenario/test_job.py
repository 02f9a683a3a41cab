# SPDX-License-Identifier: Apache-2.0
"""What a job takes for its own."""

import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from scenario import job
from scenario.job import Job, start_time


class LiveAreas(unittest.TestCase):
    def test_of_an_earlier_process_with_the_same_number_are_left_alone(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(job, "live_area_dir", return_value=folder):
            pid, started = os.getpid(), start_time(os.getpid())
            own, other = (os.path.join(folder, f"{pid}-{start}-4026531836-0123abcd.area") for start in (started, int(started) - 1))
            for path in own, other:
                with open(path, "w", encoding="utf-8"):
                    pass
            of_this = mock.Mock(names=[f"{pid}-{started}"])
            self.assertEqual(Job.live_areas(of_this), [(0, own)])


if __name__ == "__main__":
    unittest.main()

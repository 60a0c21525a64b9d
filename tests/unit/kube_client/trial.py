"""The program that asks in these tests."""

from functools import partial

import kube_client.connect

PROGRAM = "trial"
connect = partial(kube_client.connect.connect, user_agent=f"{PROGRAM}/1.0")

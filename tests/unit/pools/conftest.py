"""The settings of an agent, whose loop numbers and describes cards."""

from tests.unit.agent.conftest import settings

__all__ = ["settings"]

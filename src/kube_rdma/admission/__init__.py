"""Judges pods before they run, and completes them: `config check`, policies of the API server.

What stands above may import it: cli, controller, verify, agent, explain, doctor, resources,
discover, names.
"""

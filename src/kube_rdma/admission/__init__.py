"""Judges pods before they run, and completes them: `config check`, policies of the API server.

May be imported by what stands above it: cli, controller, verify, agent, explain, doctor, resources.
"""

"""The journal, on a real disk and on one that forgets."""

"""Gemma 3 and Gemma 4 for golem: architectures, chat templates and a model to start with."""

"""Qwen3 and Qwen3.5 to 3.8 for golem: architectures and chat templates."""

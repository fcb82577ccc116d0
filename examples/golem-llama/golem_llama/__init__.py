"""The architecture `llama` for golem: the worked example of an architecture plugin."""

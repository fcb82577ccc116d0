"""The extension hub: programs beside the server that talk to a model (channels) or are one (providers).

Channels post turns and follow them; providers and tools are called back over loopback HTTP.  `hub.py` puts the parts
together, and `routes.py` has the HTTP side.
"""

"""Laya for golem: typed questions about a state, answered by one pass of an encoder."""

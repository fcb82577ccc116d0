"""Kyutai speech to text for golem: sound in, words with their times out, while it is spoken."""

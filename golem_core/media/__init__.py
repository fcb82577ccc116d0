"""Pictures and recordings: from the bytes of a file to rows in a prompt."""

"""Which instance a record goes to: key hashing and routing tables. No I/O."""

"""Task files of users: rows of many shapes, read as typed tasks or refused by name."""

"""Pages that people look at: one HTML file, with its charts inside, that needs no network and no other file."""

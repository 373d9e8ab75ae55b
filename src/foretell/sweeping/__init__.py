"""Many questions at once: models x clusters x batches x trainers, each answered, kept and put in one table."""

"""Numbers and pictures for people: what scores over seeds say, and how a run went."""

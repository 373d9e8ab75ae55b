"""What is learnt: convex problems with known answers, and small networks on real data."""

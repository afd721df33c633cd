"""The core: records, maths and bookkeeping. Imports torch and omegaconf at most."""

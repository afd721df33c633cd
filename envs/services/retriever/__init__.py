"""Retrieval: a corpus, its indexes, and a server that speaks Search-R1's and ReSearch's protocols.

`retriever.make_retriever` is the in-process entry, `service.RetrieverServer` the server, `client.RetrieverClient` what
environments search with, `config.KINDS` the table of kinds. Nothing is imported here: a client needs neither numpy nor
faiss.
"""

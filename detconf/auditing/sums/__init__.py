"""How a sum or product was added up: in which order and format."""

"""THE PRACTITIONER'S APPLICATION: from a table and a configuration to a release and its page."""

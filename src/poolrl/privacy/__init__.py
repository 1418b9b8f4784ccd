"""THE DOOR: the only place where exact counts become private numbers, and where rho is paid."""

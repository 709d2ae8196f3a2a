"""What the commands ask of Boltzmann machines."""

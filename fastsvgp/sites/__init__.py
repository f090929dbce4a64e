"""The dual parameterisation: t-VGP and t-SVGP, parameterised by sites."""

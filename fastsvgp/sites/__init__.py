"""The dual parameterisation: t-VGP and t-SVGP, whose parameters are sites."""

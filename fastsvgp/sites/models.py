"""Models with a site for each datum, and how q follows the sites while all else stays."""

from .site_pass import SparseSites
from .site_svgp import SiteSVGP
from .vgp import VGP, FullSites

# called with (checked model, X, jitter): .layer(rows), .moved(rows, sites)
SITES_OF = {SiteSVGP: SparseSites, VGP: FullSites}

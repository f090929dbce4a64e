"""Models with a site per datum, and the classes that update their q for new sites."""

from .site_pass import SparseSites
from .site_svgp import SiteSVGP
from .vgp import VGP, FullSites

# called with (checked model, X, jitter): .layer(rows), .moved(rows, sites)
SITES_OF = {SiteSVGP: SparseSites, VGP: FullSites}

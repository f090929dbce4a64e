import numpy as np
from typing import Any, NamedTuple
class Points(NamedTuple):
    points: Any
    codes: Any
    scales: Any
def points_of(covariance, X):
    X=np.asarray(X,float); s=np.broadcast_to(1/np.asarray(covariance.lengthscales),X.shape[1:])
    return Points(X*s,None,s)
def scales_moved(before, now):
    a,b=(np.log(s)-np.log(s).mean() for s in (before,now)); return bool(abs(a-b).max()>np.log(1.2))

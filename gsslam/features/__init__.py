"""Learned features: image encoders, the dictionary that decodes queries, recognising places."""

from gsslam.features.field import FeatureField, heat_map
from gsslam.features.head import FeatureHead, distillation_loss
from gsslam.features.kmeans import StreamingKMeans
from gsslam.features.learner import FeatureLearner
from gsslam.features.map_features import MapFeatures
from gsslam.features.places import KeyframeIndex, RankedKeyframe
from gsslam.features.recognize import recognize
from gsslam.features.teacher import Teacher, open_teacher
from gsslam.features.vit import VisionTransformer

__all__ = [
    "FeatureField",
    "FeatureHead",
    "FeatureLearner",
    "KeyframeIndex",
    "MapFeatures",
    "RankedKeyframe",
    "StreamingKMeans",
    "Teacher",
    "VisionTransformer",
    "distillation_loss",
    "heat_map",
    "open_teacher",
    "recognize",
]

"""Plans measured: by judges, people, task graphs, references and their diversity."""

MEASURES = {
    "judge": "recipe.evaluation.judge.measures:RubricMeasure",
    "proxy": "recipe.evaluation.judge.measures:ProxyMeasure",
    "diversity": "recipe.evaluation.diversity.scores:DiversityMeasure",
    "validity": "recipe.evaluation.validity.scores:ValidityMeasure",
    "match": "recipe.evaluation.match:MatchMeasure",
    "vpa": "recipe.evaluation.vpa.run:VpaMeasure",
}
"""The class of each measure of this program. It is here because a list of commands needs the names, and no NumPy."""

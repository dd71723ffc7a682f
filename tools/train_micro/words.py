"""The words of the micro model's small world. All of them begin with a consonant's sound where
``a`` may stand in front."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ANIMALS = _words(
    "cat dog bird horse fox bear mouse goat duck hen frog fish wolf sheep cow pig lion tiger "
    "rabbit snake"
)
PEOPLE = _words(
    "baker farmer teacher doctor sailor painter driver child king queen girl boy woman man "
    "singer friend"
)
THINGS = _words(
    "kite cup lamp book box hat coin key ring bell ball clock chair table boat rope map bag pen "
    "shoe basket candle mirror spoon plate bottle letter stone flag drum"
)
PLACES = _words(
    "garden kitchen forest park house school river market field barn tower library station "
    "harbour village bridge cave castle meadow shop"
)
COLOURS = _words("red blue green yellow white black brown pink grey purple")
QUALITIES = _words(
    "small big old new happy sad quiet loud quick slow kind brave clean warm cold strong young tall"
)
FOODS = _words(
    "apples pears plums nuts bread cheese soup rice beans cakes berries carrots peas honey "
    "grapes figs"
)
NAMES = _words(
    "Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Kate Leo Mia Noah Olga Paul Rosa Sam "
    "Tina Victor"
)
MOVES = ("sleeps sleep", "runs run", "sings sing", "waits wait", "dances dance", "rests rest")
DEEDS = (
    "sees see",
    "finds find",
    "likes like",
    "wants want",
    "takes take",
    "holds hold",
    "loves love",
    "needs need",
    "paints paint",
    "watches watch",
    "follows follow",
    "hears hear",
)
MANNERS = _words("slowly quickly quietly today again often here now")
PREPOSITIONS = _words("in near behind")

KEYS = _words(
    "amber basil cedar copper coral cotton crystal daisy delta ember falcon fern flint garnet "
    "ginger gold granite hazel heron iris iron ivory jade jasmine juniper laurel lemon lilac lily "
    "linen lotus maple marble mint moss nickel nutmeg oak olive onyx opal orchid pearl pepper pine "
    "poppy quartz raven robin rose ruby saffron sage salt sand silk silver slate sparrow steel "
    "sugar swan tin topaz tulip velvet violet walnut wheat willow wool zinc"
)
"""What values are given to."""

CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Portugal": "Lisbon",
    "Austria": "Vienna",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Poland": "Warsaw",
    "Greece": "Athens",
    "Japan": "Tokyo",
    "China": "Beijing",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Canada": "Ottawa",
}

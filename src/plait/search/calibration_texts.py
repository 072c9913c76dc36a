"""Questions and passages that answer them, on subjects far from one another: what a model gives to related and to
unrelated texts is measured with them. They are part of the calibration: a change changes the scores of new indexes."""

from __future__ import annotations

_TEXTS = """
how do bees make honey
  Worker bees collect nectar from flowers and pass it from mouth to mouth in the hive until most of its water has
  gone. They seal the thick honey in wax cells as food for the winter.

what causes ocean tides
  The pull of the moon, and to a lesser degree of the sun, raises the water on the near and far side of the earth.
  As the earth turns, each coast passes through high and low water about twice a day.

rules for driving on a motorway in fog
  In poor visibility drivers must slow down, keep a longer distance to the car ahead and use dipped headlights. Fog
  lamps may be switched on when one cannot see farther than a hundred metres.

symptoms of iron deficiency
  People who lack iron are often tired and pale, short of breath when they climb stairs, and have cold hands and
  brittle nails. A blood test of ferritin shows how much of the mineral the body has stored.

how is steel made
  Iron ore is melted with coke and limestone in a blast furnace. Oxygen blown through the liquid pig iron burns most
  of its carbon away, and alloying metals are added before the steel is cast.

who painted the ceiling of the Sistine Chapel
  Pope Julius commissioned Michelangelo to decorate the vault of the chapel in 1508. The painter worked four years
  on a scaffold to finish the frescoes, among them the Creation of Adam.

how to reverse a list in Python
  The method reverse changes a list in place and returns nothing. To get a new sequence instead, call reversed or
  take a slice with a step of minus one.

interest on a savings account
  Banks pay interest on deposits as a percentage for each year. When it is added every month, the next month's
  interest is paid on a larger balance, which makes the effective yearly rate higher.

when did the Roman Empire in the west end
  In the year 476 the general Odoacer deposed Romulus Augustulus, the last emperor in Italy. The eastern half, ruled
  from Constantinople, lasted almost a thousand years longer.

best soil for growing tomatoes
  Tomato plants want a loose, slightly acid bed with plenty of compost that drains well but does not dry out. Feed
  them with potassium once the first fruits have set.

offside rule in football
  A player in the opponents' half is offside if nearer to the goal line than the ball and the second last defender
  when a team mate passes to him. There is no offside from a throw-in or a corner kick.

how do vaccines protect against disease
  A vaccine shows the immune system a harmless piece of a germ. The body makes antibodies and memory cells, which
  react at once if the real virus or bacterium arrives later.

why is the sky blue
  Molecules of the air scatter short waves of sunlight far more than long ones. Blue light therefore reaches the eye
  from all directions, while at sunset the long way through the atmosphere leaves the reds.

notice period for a rented flat
  A tenant may end the lease with three months' notice in writing. The landlord needs a reason that the law accepts,
  and the period grows with the years that the tenant has lived there.

how to tune a guitar by ear
  Press the fifth fret of the lowest string and turn the peg of the next string until both sound the same. Go on in
  this way, with the fourth fret for the third string.

what do whales eat
  Baleen whales filter krill and small fish from the sea through plates in their mouths. Toothed whales hunt squid,
  fish and seals; the sperm whale dives a kilometre deep for its prey.

how does a refrigerator cool
  A pump compresses a gas, which gives off its heat at the back of the cabinet and turns liquid. Behind a narrow
  valve it evaporates and takes heat from the food inside.

election of the president of the United States
  Voters in each state choose electors, as many as the state has members of Congress. The candidate with at least
  270 of the 538 electoral votes enters the White House in January.

recipe for bread without yeast
  Mix flour with baking soda, salt and buttermilk, shape a round loaf and cut a cross into it. Soda bread goes into
  the hot oven at once and needs about forty minutes.

distance from the earth to the nearest star
  Apart from the sun, Proxima Centauri is closest, some 4.2 light years away. A probe as fast as today's would
  travel tens of thousands of years to reach it.

how are parcels insured when posted abroad
  The sender states the value of the contents on the customs form and pays a fee for it. If the shipment is lost or
  damaged, the carrier refunds up to that amount on proof of purchase.

grammar of the German dative case
  Verbs such as helfen and prepositions such as mit and bei take the dative. The article der becomes dem, die
  becomes der, and most plural nouns end in n.

training plan for a first marathon
  Beginners run three or four times a week for about five months. The long run grows slowly to thirty kilometres,
  and the last weeks before the race are easy so that the legs recover.

password reset for a user account
  Click the link on the sign-in page and enter your e-mail address. A message with a code arrives within minutes; it
  lets you choose a new password and logs out all other devices.
"""


def _pairs() -> tuple[tuple[str, str], ...]:
    blocks = [block.strip().split("\n", 1) for block in _TEXTS.strip().split("\n\n")]
    return tuple((question, " ".join(passage.split())) for question, passage in blocks)


PAIRS = _pairs()  # (question, passage)

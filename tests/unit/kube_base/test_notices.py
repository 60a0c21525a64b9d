"""A thing is said once while it stands, and again when it comes back."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.notices import MOST_TOPICS, Notices

SENTENCES = st.lists(st.sampled_from("abc"), max_size=4)


def test_what_stands_is_no_news():
    """Another sentence about the same thing is, and the first one when it is back."""
    notices = Notices()
    assert notices.news("disk", "full") == ("full",)
    assert notices.news("disk", "full") == ()
    assert notices.news("disk", "full", "slow") == ("slow",)
    assert notices.news("disk", "slow") == ()
    assert notices.news("disk", "full") == ("full",)


def test_what_is_over_is_news_when_it_comes_back():
    """Whoever looks and finds nothing says so, in either way."""
    notices = Notices()
    assert not notices.over("disk")
    notices.news("disk", "full")
    assert notices.over("disk")
    assert not notices.over("disk")
    assert notices.news("disk", "full") == ("full",)
    assert notices.news("disk") == ()
    assert notices.news("disk", "full") == ("full",)


@given(st.lists(st.tuples(st.sampled_from("xy"), SENTENCES), max_size=8))
def test_news_is_what_the_last_look_at_the_topic_had_not(looks):
    """Each sentence once, in its order, whatever other topics have."""
    notices, last = Notices(), {}
    for topic, sentences in looks:
        wanted = [text for text in dict.fromkeys(sentences) if text not in last.get(topic, ())]
        assert notices.news(topic, *sentences) == tuple(wanted)
        last[topic] = sentences


def test_topics_of_objects_that_come_and_go_take_no_memory_for_ever():
    """What was told least recently is forgotten, and is news again."""
    notices = Notices()
    for number in range(MOST_TOPICS + 1):
        assert notices.news(number, "full")
    assert not notices.news(MOST_TOPICS, "full")
    assert notices.news(0, "full")

"""What `hack/bench race` and `scale` read from the API server's page of metrics."""

from __future__ import annotations

from hack.benchmarks.race.served import Served, served

METRICS = """# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",verb="LIST"} 5
apiserver_request_total{code="429",resource="pods",verb="LIST"} 2
apiserver_request_total{code="200",resource="pods",verb="WATCH"} 40
apiserver_request_terminations_total{code="429"} 9
# TYPE apiserver_watch_events_total counter
apiserver_watch_events_total{group="",resource="persistentvolumes",version="v1"} 1.5e+06
apiserver_watch_events_total{group="",resource="persistentvolumeclaims",version="v1"} 7
apiserver_watch_events_sizes_count{group="",resource="persistentvolumes"} 11
apiserver_watch_events_sizes_sum{group="",resource="persistentvolumes"} 2000
apiserver_watch_events_sizes_sum{group="",resource="persistentvolumeclaims"} 300
apiserver_response_sizes_sum{resource="persistentvolumes",scope="cluster",subresource="",verb="LIST"} 900
apiserver_response_sizes_sum{resource="persistentvolumes",scope="resource",subresource="",verb="GET"} 50
apiserver_response_sizes_sum{resource="persistentvolumes",scope="cluster",subresource="",verb="WATCH"} 77777
apiserver_response_sizes_sum{resource="",scope="",subresource="/readyz",verb="GET"} 4444
apiserver_watch_cache_events_received_total{group="",resource="persistentvolumes"} 30
apiserver_watch_cache_events_received_total{group="storage.k8s.io",resource="volumeattachments"} 2
apiserver_longrunning_requests{group="",resource="persistentvolumes",scope="cluster",subresource="",verb="WATCH"} 4
apiserver_longrunning_requests{group="",resource="persistentvolumes",scope="resource",subresource="",verb="WATCH"} 100
apiserver_longrunning_requests{group="storage.k8s.io",resource="volumeattachments",scope="cluster",subresource="",verb="WATCH"} 3
apiserver_longrunning_requests{group="",resource="pods",scope="resource",subresource="proxy",verb="CONNECT"} 8
"""
KINDS = {"persistentvolumes": 30, "volumeattachments.storage.k8s.io": 2}
WATCHES = {"persistentvolumes": 4, "volumeattachments.storage.k8s.io": 3}


def test_requests_events_and_bytes_are_read_and_neither_watches_nor_what_is_no_object_are_answers() -> None:
    assert served(METRICS) == Served(7, 2, 1_500_007, 2300, 950, KINDS, WATCHES)


def test_every_watch_of_a_kind_is_offered_every_change_but_those_of_one_object() -> None:
    assert served(METRICS).offered == 30 * 4 + 2 * 3


def test_what_is_not_sent_was_filtered() -> None:
    assert Served(0, 0, 20, changes=KINDS, watches=WATCHES).filtered == 106
    assert Served(0, 0, 500, changes=KINDS, watches=WATCHES).filtered == 0


def test_only_what_was_counted_since_belongs_to_a_phase() -> None:
    now, then = Served(10, 5, 100, 900, 80, {"pods": 7, "nodes": 2}, {"pods": 4}), Served(4, 3, 30, 400, 20, {"pods": 3}, {"pods": 9})
    assert now.since(then) == Served(6, 2, 70, 500, 60, {"pods": 4, "nodes": 2}, {"pods": 4})

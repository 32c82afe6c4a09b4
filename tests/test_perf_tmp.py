import os, time, sys, statistics, cProfile, pstats
os.environ["TAGMILL_SETTLE_SECONDS"]=os.environ.get("S","0.05")
import django
def test_perf(db):
    from tagmill import config; config.load.cache_clear()
    from django.db import connection
    from tagmill.fleet import clusters
    from tagmill.flows import ingest
    from tagmill.tags import tags
    from fixtures.generate import generate
    from loadtest.rig.definitions import definitions
    from tagmill.tags.models import Tag
    N=int(os.environ.get("N","2000")); T=int(os.environ.get("T","500"))
    clusters.create("north")
    t=time.perf_counter()
    for name, d in definitions(T).items(): tags.create(name, definition=d)
    print("tags", time.perf_counter()-t)
    nodes=list(generate(N,1,"lean"))
    ups=[ingest.Upload(n.system_id, "north", n.hostname, n.kind, {p:x.encode() for p,x in n.probes.items()}) for n in nodes]
    t=time.perf_counter()
    settled=0
    for i in range(0,N,256):
        v=ingest.store(ups[i:i+256]); settled+=sum(bool(x.settled) for x in v)
    dt=time.perf_counter()-t
    print("import", N/dt, "per s; settled", settled)
    other=list(generate(300,2,"lean"))
    def one(i):
        n=other[i]; return ingest.Upload(nodes[i*5].system_id, None, None, None, {p:x.encode() for p,x in n.probes.items()})
    os.environ["TAGMILL_SETTLE_SECONDS"]="0.05"; config.load.cache_clear(); cur=connection.cursor(); cur.execute("ANALYZE")
    for i in range(20): ingest.store([one(i)])
    times=[];c0=time.process_time();s=0
    pr=cProfile.Profile() if os.environ.get("PROF") else None
    if pr: pr.enable()
    for i in range(20,300):
        t=time.perf_counter(); v=ingest.store([one(i)]); times.append(time.perf_counter()-t); s+=bool(v[0].settled)
    if pr: pr.disable(); pstats.Stats(pr).sort_stats("tottime").print_stats(25)
    print("store median ms", 1e3*statistics.median(times), "p95", 1e3*sorted(times)[int(.95*len(times))], "cpu ms", 1e3*(time.process_time()-c0)/280, "settled", s)
    from django.test.utils import CaptureQueriesContext
    with CaptureQueriesContext(connection) as q:
        ingest.store([one(7)])
    for item in q.captured_queries: print(item["time"], item["sql"][:60].replace("\n"," "))

package main

import (
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// Cluster is one line of the input: the objects of a cluster, and the pod to be placed there.
type Cluster struct {
	Pod                    *v1.Pod                         `json:"pod"`
	Nodes                  []*v1.Node                      `json:"nodes"`
	Pods                   []*v1.Pod                       `json:"pods"`
	Namespaces             []*v1.Namespace                 `json:"namespaces"`
	Services               []*v1.Service                   `json:"services"`
	PersistentVolumeClaims []*v1.PersistentVolumeClaim     `json:"persistentvolumeclaims"`
	PersistentVolumes      []*v1.PersistentVolume          `json:"persistentvolumes"`
	StorageClasses         []*storagev1.StorageClass       `json:"storageclasses"`
	CSINodes               []*storagev1.CSINode            `json:"csinodes"`
	CSIDrivers             []*storagev1.CSIDriver          `json:"csidrivers"`
	CSIStorageCapacities   []*storagev1.CSIStorageCapacity `json:"csistoragecapacities"`
	VolumeAttachments      []*storagev1.VolumeAttachment   `json:"volumeattachments"`
}

// setDefaults sets the defaults that the API server sets when it stores an object.
func (c *Cluster) setDefaults() {
	legacyscheme.Scheme.Default(c.Pod)
	setDefaults(c.Nodes)
	setDefaults(c.Pods)
	setDefaults(c.PersistentVolumeClaims)
	setDefaults(c.PersistentVolumes)
	setDefaults(c.StorageClasses)
	setDefaults(c.CSIDrivers)
}

func setDefaults[T runtime.Object](objects []T) {
	for _, object := range objects {
		legacyscheme.Scheme.Default(object)
	}
}

// snapshot returns the nodes with the pods that count there: finished pods do not, nor do those of unknown nodes.
func (c *Cluster) snapshot() *schedulercache.Snapshot {
	known := map[string]bool{}
	for _, node := range c.Nodes {
		known[node.Name] = true
	}
	var counted []*v1.Pod
	for _, pod := range c.Pods {
		finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if known[pod.Spec.NodeName] && !finished {
			counted = append(counted, pod)
		}
	}
	return schedulercache.NewSnapshot(counted, c.Nodes)
}

// informers returns informers that have synced; those of kinds that a cluster lacks are empty.
func (c *Cluster) informers() informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(nil, 0)
	add(factory, &v1.Pod{}, c.Pods)
	add(factory, &v1.Node{}, c.Nodes)
	add(factory, &v1.Namespace{}, c.Namespaces)
	add(factory, &v1.Service{}, c.Services)
	add(factory, &v1.PersistentVolumeClaim{}, c.PersistentVolumeClaims)
	add(factory, &v1.PersistentVolume{}, c.PersistentVolumes)
	add(factory, &storagev1.StorageClass{}, c.StorageClasses)
	add(factory, &storagev1.CSINode{}, c.CSINodes)
	add(factory, &storagev1.CSIDriver{}, c.CSIDrivers)
	add(factory, &storagev1.CSIStorageCapacity{}, c.CSIStorageCapacities)
	add(factory, &storagev1.VolumeAttachment{}, c.VolumeAttachments)
	return factory
}

// add registers an informer with these objects; the first informer of a kind that a factory gets is the one it keeps.
func add[T runtime.Object](factory informers.SharedInformerFactory, kind T, objects []T) {
	factory.InformerFor(kind, func(clientset.Interface, time.Duration) cache.SharedIndexInformer {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, kind, 0, indexers)
		for _, object := range objects {
			// It fails only for objects without metadata.
			_ = informer.GetIndexer().Add(object)
		}
		return synced{informer}
	})
}

// synced is an informer that never starts, because all its objects were added to its indexer.
type synced struct{ cache.SharedIndexInformer }

// AddEventHandler reports all objects to the handler before it returns.
func (s synced) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, object := range s.GetIndexer().List() {
		handler.OnAdd(object, true)
	}
	return nil, nil
}
